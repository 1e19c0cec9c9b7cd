//! Which devices: what users write, against what is there.

use super::GpuError;

/// A device as a user, or `CUDA_VISIBLE_DEVICES`, names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pick {
    /// By index.
    Index(u32),
    /// By UUID or its begin: `GPU-4f0c`.
    Uuid(String),
    /// A MIG slice by UUID or its begin: `MIG-9a…`, or the older `MIG-GPU-…/1/0`.
    Mig(String),
    /// A MIG slice by the indices of its GPU and its own: `0:1`.
    MigIndex(u32, u32),
    /// By PCI bus id: `5d:00.0`, `0000:5D:00.0`.
    Pci(String),
}

impl Pick {
    /// Reads one name.
    ///
    /// # Errors
    /// [`GpuError::NoDeviceName`] if it has no known form.
    pub fn parse(text: &str) -> Result<Pick, GpuError> {
        let text = text.trim();
        let lower = text.to_ascii_lowercase();
        let bad = || GpuError::NoDeviceName { asked: text.into() };
        if text.bytes().all(|b| b.is_ascii_digit()) && !text.is_empty() {
            return text.parse().map(Pick::Index).map_err(|_| bad());
        }
        if lower.starts_with("mig-") {
            return Ok(Pick::Mig(lower));
        }
        if lower.starts_with("gpu-") {
            return Ok(Pick::Uuid(lower));
        }
        if let Some(bus) = bus_id(&lower) {
            return Ok(Pick::Pci(bus));
        }
        if let Some((gpu, slice)) = text.split_once(':')
            && let (Ok(gpu), Ok(slice)) = (gpu.parse(), slice.parse())
        {
            return Ok(Pick::MigIndex(gpu, slice));
        }
        // What nvidia_gpu_exporter calls a uuid lacks the `GPU-`.
        if lower.len() >= 9 && lower.as_bytes()[8] == b'-' && lower.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-')
        {
            return Ok(Pick::Uuid(format!("gpu-{lower}")));
        }
        Err(bad())
    }

    fn fits(&self, device: &Present) -> bool {
        match self {
            Pick::Index(i) => *i == device.index,
            Pick::Uuid(begin) => device.uuid.to_ascii_lowercase().starts_with(begin),
            Pick::Pci(bus) => {
                device.pci_bus_id.as_deref().and_then(|b| bus_id(&b.to_ascii_lowercase())).as_ref() == Some(bus)
            }
            Pick::MigIndex(gpu, slice) => *gpu == device.index && device.mig.iter().any(|m| m.index == *slice),
            Pick::Mig(begin) => device.mig.iter().any(|m| m.uuid.to_ascii_lowercase().starts_with(begin)),
        }
    }

    fn fits_slice(&self, slice: &Slice) -> bool {
        match self {
            Pick::Mig(begin) => slice.uuid.to_ascii_lowercase().starts_with(begin),
            Pick::MigIndex(_, index) => slice.index == *index,
            _ => true,
        }
    }
}

/// A PCI bus id without leading zeros of its domain, in lower case; `None` if it is none.
fn bus_id(lower: &str) -> Option<String> {
    let (rest, function) = lower.rsplit_once('.')?;
    let mut parts = rest.rsplit(':');
    let (slot, bus, domain) = (parts.next()?, parts.next()?, parts.next().unwrap_or("0"));
    let hex = |s: &str| u32::from_str_radix(s, 16).ok();
    if parts.next().is_some() {
        return None;
    }
    Some(format!("{:x}:{:02x}:{:02x}.{:x}", hex(domain)?, hex(bus)?, hex(slot)?, hex(function)?))
}

/// A device that is there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Present {
    /// Its index in the source's order.
    pub index: u32,
    /// Its UUID.
    pub uuid: String,
    /// Its PCI bus id, if the source tells.
    pub pci_bus_id: Option<String>,
    /// Its model.
    pub name: String,
    /// Its MIG slices; empty where MIG is off.
    pub mig: Vec<Slice>,
}

/// A MIG slice that is there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Slice {
    /// Its index within the device.
    pub index: u32,
    /// Its UUID.
    pub uuid: String,
}

/// A device to read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chosen {
    /// Its UUID: the key everywhere, since indices are given out anew when a device vanishes.
    pub uuid: String,
    /// The UUIDs of the slices to read; empty where MIG is off.
    pub mig: Vec<String>,
}

/// What `CUDA_VISIBLE_DEVICES` and its companion say in our environment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Visible {
    /// `CUDA_VISIBLE_DEVICES`; `None` if it is not set.
    pub devices: Option<String>,
    /// `CUDA_DEVICE_ORDER`.
    pub order: Option<String>,
}

impl Visible {
    /// Reads our environment.
    pub fn here() -> Visible {
        Visible { devices: std::env::var("CUDA_VISIBLE_DEVICES").ok(), order: std::env::var("CUDA_DEVICE_ORDER").ok() }
    }
}

/// The devices to read, in the order in which they are `present`, and what there is to say about the choice.
///
/// The scenario's `asked` goes first; without it `visible` is honoured as CUDA does: the list ends at
/// the first entry that names nothing.
///
/// # Errors
/// If the scenario asks for what is not there, is ambiguous, or is no name at all. An odd
/// `CUDA_VISIBLE_DEVICES` is no error.
pub fn choose(
    asked: &[String],
    visible: &Visible,
    present: &[Present],
) -> Result<(Vec<Chosen>, Vec<String>), GpuError> {
    let mut remarks = Vec::new();
    let picks: Option<Vec<Pick>> = if asked.is_empty() {
        visible.devices.as_deref().filter(|v| !v.eq_ignore_ascii_case("all")).map(|list| {
            list.split(',')
                .map_while(|item| Pick::parse(item).ok().filter(|pick| present.iter().any(|d| pick_device(pick, d))))
                .collect()
        })
    } else {
        let mut picks = Vec::new();
        for text in asked {
            let pick = Pick::parse(text)?;
            let fitting: Vec<&Present> = present.iter().filter(|d| pick_device(&pick, d)).collect();
            match fitting.as_slice() {
                [] => return Err(GpuError::NoSuchDevice { asked: text.clone(), present: list(present) }),
                [_] => picks.push(pick),
                several => {
                    let candidates = several.iter().map(|d| d.uuid.as_str()).collect::<Vec<_>>().join(", ");
                    return Err(GpuError::Ambiguous { asked: text.clone(), candidates });
                }
            }
        }
        Some(picks)
    };
    let chosen: Vec<Chosen> = match &picks {
        None => present.iter().map(|d| Chosen { uuid: d.uuid.clone(), mig: uuids(&d.mig, |_| true) }).collect(),
        Some(picks) => present
            .iter()
            .filter_map(|d| {
                let on: Vec<&Pick> = picks.iter().filter(|p| pick_device(p, d)).collect();
                let slice = |s: &Slice| on.iter().any(|p| p.fits_slice(s));
                (!on.is_empty()).then(|| Chosen { uuid: d.uuid.clone(), mig: uuids(&d.mig, slice) })
            })
            .collect(),
    };
    if asked.is_empty()
        && let Some(list) = &visible.devices
    {
        if chosen.len() < present.len() {
            remarks.push(format!("CUDA_VISIBLE_DEVICES={list} shows {} of {} GPUs", chosen.len(), present.len()));
        }
        let by_index = picks.iter().flatten().any(|p| matches!(p, Pick::Index(_) | Pick::MigIndex(..)));
        let mixed = present.windows(2).any(|w| w[0].name != w[1].name);
        if by_index && mixed && visible.order.as_deref() != Some("PCI_BUS_ID") {
            remarks.push(
                "the GPUs differ and CUDA_DEVICE_ORDER is not PCI_BUS_ID, so CUDA may number them otherwise: name them by UUID in gpu.devices"
                    .into(),
            );
        }
    }
    Ok((chosen, remarks))
}

/// Whether a pick means this device. The older name of a slice, `MIG-GPU-…/1/0`, means its GPU where no slice has that name.
fn pick_device(pick: &Pick, device: &Present) -> bool {
    if pick.fits(device) {
        return true;
    }
    match pick {
        Pick::Mig(name) => {
            let gpu = name.strip_prefix("mig-").and_then(|n| n.split_once('/')).map(|(gpu, _)| gpu);
            gpu.is_some_and(|gpu| gpu.starts_with("gpu-") && device.uuid.eq_ignore_ascii_case(gpu))
        }
        _ => false,
    }
}

fn uuids(slices: &[Slice], take: impl Fn(&Slice) -> bool) -> Vec<String> {
    slices.iter().filter(|s| take(s)).map(|s| s.uuid.clone()).collect()
}

fn list(present: &[Present]) -> String {
    if present.is_empty() {
        return "nothing, since there is no GPU".into();
    }
    let one = |d: &Present| {
        let slices: String = d.mig.iter().map(|m| format!(", {}", m.uuid)).collect();
        format!("{} ({}{slices})", d.index, d.uuid)
    };
    present.iter().map(one).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn present() -> Vec<Present> {
        let device = |index: u32, uuid: &str, bus: &str, mig: &[&str]| Present {
            index,
            uuid: uuid.into(),
            pci_bus_id: Some(bus.into()),
            name: "H200".into(),
            mig: mig.iter().enumerate().map(|(i, u)| Slice { index: i as u32, uuid: (*u).into() }).collect(),
        };
        vec![
            device(0, "GPU-4f0c1111", "00000000:5D:00.0", &[]),
            device(1, "GPU-4f0d2222", "00000000:9B:00.0", &["MIG-aaaa", "MIG-bbbb"]),
        ]
    }

    fn ask(names: &[&str]) -> Result<Vec<(String, usize)>, GpuError> {
        let asked: Vec<String> = names.iter().map(|s| (*s).to_string()).collect();
        let (chosen, _) = choose(&asked, &Visible::default(), &present())?;
        Ok(chosen.into_iter().map(|c| (c.uuid, c.mig.len())).collect())
    }

    #[test]
    fn every_form_finds_its_device() {
        let first = vec![("GPU-4f0c1111".to_string(), 0)];
        for name in ["0", "GPU-4f0c1111", "gpu-4F0C", "5d:00.0", "0000:5D:00.0", "00000000:5d:00.0", " 0 "] {
            assert_eq!(ask(&[name]).unwrap(), first, "{name}");
        }
        for (name, slices) in
            [("1", 2), ("9B:00.0", 2), ("MIG-a", 1), ("1:1", 1), ("MIG-GPU-4f0d2222/1/0", 0), ("gpu-4f0d", 2)]
        {
            assert_eq!(ask(&[name]).unwrap(), [("GPU-4f0d2222".to_string(), slices)], "{name}");
        }
        assert_eq!(ask(&["1", "0", "GPU-4f0c"]).unwrap().len(), 2, "twice the same is once");
        assert_eq!(ask(&["MIG-a", "MIG-b"]).unwrap(), [("GPU-4f0d2222".to_string(), 2)]);
    }

    #[test]
    fn what_is_not_there_is_told_with_what_is() {
        let e = ask(&["2"]).unwrap_err().to_string();
        assert!(e.contains("`2`") && e.contains("0 (GPU-4f0c1111)") && e.contains("MIG-bbbb"), "{e}");
        assert!(matches!(ask(&["GPU-4f0"]).unwrap_err(), GpuError::Ambiguous { .. }));
        assert!(matches!(ask(&["0:7"]).unwrap_err(), GpuError::NoSuchDevice { .. }));
        for bad in ["", "first", "0,1", "5d:00", "-1"] {
            assert!(matches!(ask(&[bad]).unwrap_err(), GpuError::NoDeviceName { .. }), "{bad}");
        }
    }

    #[test]
    fn cuda_visible_devices_is_read_as_cuda_reads_it() {
        for (text, expected) in [
            (None, 2),
            (Some("all"), 2),
            (Some("0,1"), 2),
            (Some("1"), 1),
            (Some("GPU-4f0d"), 1),
            (Some("MIG-bbbb"), 1),
            (Some("0,-1,1"), 1),
            (Some("7,0"), 0),
            (Some(""), 0),
            (Some("NoDevFiles"), 0),
        ] {
            let visible = Visible { devices: text.map(Into::into), order: None };
            assert_eq!(choose(&[], &visible, &present()).unwrap().0.len(), expected, "{text:?}");
        }
        let visible = Visible { devices: Some("1".into()), order: None };
        let (chosen, remarks) = choose(&["0".into()], &visible, &present()).unwrap();
        assert_eq!((chosen[0].uuid.as_str(), remarks.len()), ("GPU-4f0c1111", 0), "the scenario goes first");
        let mut mixed = present();
        mixed[1].name = "L4".into();
        assert_eq!(choose(&[], &visible, &mixed).unwrap().1.len(), 2);
    }
}
