#!/bin/bash
# Make a Debian machine one on which `bicoastal` runs on Mininet with netem. Run as root; a second run changes nothing.
#
#     provision.sh [REPOSITORY]     where the checkout is, /vagrant by default
set -euo pipefail
repository="${1:-/vagrant}"
environment=/opt/bicoastal

mapfile -t wanted < <(grep -v -e '^#' -e '^$' "$repository/vagrant/packages.txt")
missing=()
for package in "${wanted[@]}"; do
    [ "$(dpkg-query --show --showformat='${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || missing+=("$package")
done
if [ "${#missing[@]}" -gt 0 ]; then
    apt-get update -q
    DEBIAN_FRONTEND=noninteractive apt-get install -q --yes --no-install-recommends "${missing[@]}"
fi

# Debian's Python, so that Mininet's own modules are in reach; the stamp says for which dependencies it was made.
stamp="$(sha256sum < "$repository/pyproject.toml")"
if [ ! -f "$environment/.made-for" ] || [ "$(cat "$environment/.made-for")" != "$stamp" ]; then
    [ -x "$environment/bin/python" ] || /usr/bin/python3 -m venv --system-site-packages "$environment"
    "$environment/bin/python" -m pip install --quiet --no-input --editable "$repository" 'pytest>=8.0'
    printf '%s\n' "$stamp" > "$environment/.made-for"
fi
[ "$(readlink /usr/local/bin/bicoastal)" = "$environment/bin/bicoastal" ] ||
    ln -sf "$environment/bin/bicoastal" /usr/local/bin/bicoastal

mkdir -p /etc/sysctl.d /etc/modules-load.d
settings=/etc/sysctl.d/60-bicoastal.conf
wanted_settings='net.core.netdev_max_backlog = 10000'
if [ ! -f "$settings" ] || [ "$(cat "$settings")" != "$wanted_settings" ]; then
    printf '%s\n' "$wanted_settings" > "$settings"
    sysctl --quiet --load "$settings"
fi

# What the kernel loads by itself only when it is asked in the first network namespace.
modules=/etc/modules-load.d/bicoastal.conf
wanted_modules="$(printf '%s\n' sch_netem tcp_bbr)"
if [ ! -f "$modules" ] || [ "$(cat "$modules")" != "$wanted_modules" ]; then
    printf '%s\n' "$wanted_modules" > "$modules"
    modprobe --all sch_netem tcp_bbr
fi
