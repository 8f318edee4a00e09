# shellcheck shell=bash
# The Debian packages that building pawl takes, and how to get them.
#
# For bash scripts. From a script in examples/, for instance:
#
#   root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
#   . "$root/cmake/packages.sh"
#   install_packages "${pawl_packages[@]}"          # all of them
#   install_packages g++ cmake libcaf-dev           # or just some
#
# Installs only what is missing, so a second call costs a fraction of a second
# and needs neither the network nor root. Fails, with the names, if something is
# missing and neither root nor sudo is at hand.

# shellcheck disable=SC2034 # used by the scripts that source this file
pawl_packages=(
  g++ cmake ninja-build pkg-config
  libcaf-dev libfmt-dev libxxhash-dev
  libgtest-dev libbenchmark-dev
  libcli11-dev libmodbus-dev nlohmann-json3-dev librocksdb-dev
  spin iproute2 clang libclang-rt-14-dev
)

install_packages() {
  local package missing=() as_root=()
  for package in "$@"; do
    dpkg-query -W -f '${db:Status-Status}\n' "$package" 2>/dev/null \
      | grep -qx installed || missing+=("$package")
  done
  if [ ${#missing[@]} -eq 0 ]; then
    echo "packages: all $# are installed"
    return 0
  fi
  if [ "$(id -u)" -ne 0 ]; then
    if ! command -v sudo >/dev/null; then
      echo "packages: missing, and neither root nor sudo: ${missing[*]}" >&2
      return 1
    fi
    as_root=(sudo)
  fi
  echo "packages: installing ${missing[*]}"
  # A stale index may still do for what is asked; the install decides.
  "${as_root[@]}" apt-get update -qq \
    || echo "packages: could not refresh the package index" >&2
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y -qq --no-install-recommends "${missing[@]}" </dev/null
}
