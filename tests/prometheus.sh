# Sourced by the proofs that need a real Prometheus: puts `prometheus` and `promtool` onto the PATH.
#
# Where both are there already, they are taken. Otherwise the Debian packages are downloaded and unpacked into the folder
# that is given, so that nothing is installed and no service is started: `prometheus`, and `promtool` where that is a
# package of its own (from Debian 14 on; before, `prometheus` holds both).

prometheus_onto_path() {
    local folder=$1
    if command -v promtool >/dev/null && command -v prometheus >/dev/null; then
        return
    fi
    echo "unpacking Debian's prometheus into a temporary folder"
    mkdir -p "$folder"
    (
        cd "$folder"
        packages=prometheus
        if [ -n "$(apt-cache --names-only search '^promtool$')" ]; then
            packages="prometheus promtool"
        fi
        # shellcheck disable=SC2086  # two names
        apt-get -qq -o APT::Sandbox::User=root download $packages
        for package in *.deb; do
            dpkg -x "$package" unpacked
        done
    )
    PATH=$folder/unpacked/usr/bin:$PATH
    for tool in prometheus promtool; do
        command -v "$tool" >/dev/null || { echo "$tool is in none of the packages" >&2; return 1; }
    done
}
