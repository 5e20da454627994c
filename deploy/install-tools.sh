#!/usr/bin/env bash
# Install the tools of further checks: redis-server, PostgreSQL, prometheus (with promtool), chromium, jq, javac, Maven,
# kustomize and vegeta. As root on Debian and its relatives; a no-op if all are installed. No service is started: a redis-server on its
# usual port could be taken for one with data, and the tests start their own servers.
set -euo pipefail

# Program that a check calls, and its package.
declare -A package_of=(
  [redis-server]=redis-server
  [prometheus]=prometheus
  [promtool]=prometheus
  [chromium]=chromium
  [jq]=jq
  [initdb]=postgresql
  [javac]=default-jdk-headless
  [mvn]=maven
)
# Programs without a Debian package, which Go (1.24 or newer) builds from the Go module proxy, and their modules.
declare -A module_of=(
  [kustomize]=sigs.k8s.io/kustomize/kustomize/v5@v5.8.1
  [vegeta]=github.com/tsenart/vegeta/v12@v12.12.0
)

missing_programs() {
  local program
  for program in "${!package_of[@]}"; do
    # Debian keeps the programs of the PostgreSQL server out of PATH.
    command -v "$program" >/dev/null || compgen -G "/usr/lib/postgresql/*/bin/$program" >/dev/null || echo "$program"
  done | sort
}

install_modules() {
  local program command
  for program in "${!module_of[@]}"; do
    command -v "$program" >/dev/null && continue
    command=(go install "${module_of[$program]}")
    if ! command -v go >/dev/null; then
      echo "tools: missing $program, which is built by Go: install Go 1.24 or newer, and run 'make tools' again" >&2
      return 1
    fi
    if ((EUID != 0)); then
      echo "tools: missing $program; run 'make tools' as root, or: ${command[*]}" >&2
      return 1
    fi
    echo "tools: building $program"
    GOBIN=/usr/local/bin "${command[@]}" || return
    command -v "$program" >/dev/null || { echo "tools: /usr/local/bin is not in PATH" >&2; return 1; }
  done
}

mapfile -t missing < <(missing_programs)
if ((${#missing[@]} == 0)); then
  install_modules
  echo "tools: all installed"
  exit 0
fi
mapfile -t packages < <(for program in "${missing[@]}"; do echo "${package_of[$program]}"; done | sort -u)

if ! command -v apt-get >/dev/null; then
  echo "tools: missing ${missing[*]}; this system has no apt-get, install them with its own package manager" >&2
  exit 1
fi
if ((EUID != 0)); then
  echo "tools: missing ${missing[*]}; run 'make tools' as root, or: apt-get install ${packages[*]}" >&2
  exit 1
fi

# Debian's packages start their services during installation, unless this file forbids it.
policy=/usr/sbin/policy-rc.d
if [[ ! -e $policy ]]; then
  trap 'rm -f "$policy"' EXIT
  printf '#!/bin/sh\nexit 101\n' >"$policy"
  chmod +x "$policy"
fi

export DEBIAN_FRONTEND=noninteractive
options=(--quiet --quiet -o Acquire::Retries=3 -o DPkg::Lock::Timeout=300)
log=$(mktemp)
echo "tools: installing ${packages[*]}"
if ! { apt-get "${options[@]}" update && apt-get "${options[@]}" install --yes --no-install-recommends "${packages[@]}"; } \
  >"$log" 2>&1; then
  tail -n 30 "$log" >&2
  echo "tools: apt-get failed, the end of its output is above, the whole in $log" >&2
  exit 1
fi
rm -f "$log"

# A policy of the system may have started them, or may at the next boot: stop only services installed just now.
if [[ -d /run/systemd/system ]]; then
  for service in redis-server prometheus postgresql; do
    if [[ " ${packages[*]} " == *" $service "* ]]; then
      systemctl --quiet disable --now "$service"
    fi
  done
fi

mapfile -t missing < <(missing_programs)
if ((${#missing[@]} > 0)); then
  echo "tools: still missing after the installation: ${missing[*]}" >&2
  exit 1
fi
install_modules
echo "tools: installed"
