#!/usr/bin/env bash
# Make sure that a Docker engine answers and that Compose is there.
#
# A reachable engine is used as it is. Otherwise root on Debian or Ubuntu gets the distribution's
# docker.io and Compose, and a running daemon; anybody else gets the one command to run.
# No configuration of a daemon is ever written.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

readonly LOG=${NAGLE_LAB_DOCKERD_LOG:-/var/log/nagle-lab-dockerd.log}
readonly RUN=${NAGLE_LAB_RUN:-/run}
readonly START_SECONDS=60

# True when a daemon answers; what the client said is in $engine_said.
engine_answers() { engine_said=$(timeout 10 docker version --format '{{.Server.Version}}' 2>&1 </dev/null); }

compose_present() {
  docker compose version >/dev/null 2>&1 && return
  command -v docker-compose >/dev/null || return
  local version
  # dpkg answers in 15 ms; Compose 1.29 itself takes half a second.
  version=$(dpkg-query -W -f '${Version}' docker-compose 2>/dev/null) ||
    version=$(docker-compose version --short 2>/dev/null) || return
  printf '1.29\n%s\n' "$version" | sort --check=quiet --version-sort
}

engine_installed() { command -v dockerd >/dev/null && command -v docker >/dev/null; }

# True when the process whose number is in file $1 is called $2.
is_process() { [[ $(cat "/proc/$(cat "$1" 2>/dev/null)/comm" 2>/dev/null) == "$2" ]]; }

dockerd_runs() { is_process "$RUN/docker.pid" dockerd; }

# A daemon that was killed leaves its number, which another process may have by now: then dockerd would not start.
forget_killed_daemons() {
  dockerd_runs || rm -f "$RUN/docker.pid"
  is_process "$RUN/docker/containerd/containerd.pid" containerd || rm -f "$RUN/docker/containerd/containerd.pid"
}

# What a user without root can do about an engine that does not answer.
refuse_without_root() {
  if [[ $engine_said == *"permission denied"* ]]; then
    die "your account has no access to Docker's socket. Run: sudo usermod -aG docker $(id -un)   (then log in again)"
  elif ! engine_installed; then
    die "Docker is not installed, and only root can install it. Run: $(as_root engine.sh)"
  elif has_systemd; then
    die "the Docker daemon is not running. Run: sudo systemctl start docker"
  fi
  die "the Docker daemon is not running. Run: $(as_root engine.sh)"
}

# The packages this machine still needs, one per line.
missing_packages() {
  local package
  if ! engine_installed; then
    printf '%s\n' docker.io ca-certificates xz-utils
    # Since Debian 13 the client is a package of its own.
    if ! command -v docker >/dev/null && apt_has docker-cli; then echo docker-cli; fi
    # With AppArmor in the kernel the engine cannot start a container without its parser.
    if grep -qs Y /sys/module/apparmor/parameters/enabled; then echo apparmor; fi
  fi
  if ! compose_present; then
    for package in docker-compose-v2 docker-compose-plugin docker-compose; do
      if apt_has "$package"; then
        echo "$package"
        break
      fi
    done
  fi
}

install_missing() {
  local what=Docker packages
  engine_installed && what="Docker Compose"
  is_debian || die "$what is not installed. Install Docker Engine and Compose with this system's package manager."
  installing_allowed ||
    die "$what is not installed and NAGLE_LAB_NO_INSTALL=1 forbids installing it. Unset it, or install $what yourself."
  apt_update
  mapfile -t packages < <(missing_packages)
  ((${#packages[@]})) || die "apt has no package of $what. Install it yourself."
  apt_install "${packages[@]}"
}

# Without an init system nobody has mounted the control groups that containers need.
mount_cgroups() {
  grep -q '^cgroup' /proc/mounts || mount -t cgroup2 cgroup2 /sys/fs/cgroup 2>/dev/null || true
}

# Start a daemon that outlives this script, make and the terminal: own session, no inherited
# descriptor (a held lock or pipe would hang others), no inherited ignored signal (containers would get it).
launch_dockerd() {
  (
    cd /
    for fd in /proc/"$BASHPID"/fd/*; do
      fd=${fd##*/}
      ((fd <= 2 || fd == 255)) || eval "exec $fd>&-"
    done
    exec env --default-signal setsid dockerd </dev/null >"$LOG" 2>&1
  ) &
  dockerd_pid=$!
}

start_engine() {
  local said dockerd_pid=
  if has_systemd; then
    say "starting the Docker daemon (systemctl start docker)"
    said=$(systemctl start docker 2>&1) ||
      die "the Docker daemon does not start: $(last_line <<<"$said") See: journalctl -u docker"
  elif dockerd_runs; then
    say "waiting for the Docker daemon, which is running but does not answer yet"
  else
    say "starting the Docker daemon (its log: $LOG)"
    mount_cgroups
    forget_killed_daemons
    launch_dockerd
  fi
  local deadline=$((SECONDS + START_SECONDS))
  until engine_answers; do
    [[ -z $dockerd_pid ]] || kill -0 "$dockerd_pid" 2>/dev/null ||
      die "the Docker daemon ended at once (log: $LOG): $(last_line <"$LOG")"
    ((SECONDS < deadline)) ||
      die "the Docker daemon does not answer after $START_SECONDS s: $(last_line <<<"$engine_said") See its log."
    sleep 0.2
  done
}

ensure_engine() {
  engine_answers && return
  [[ -z ${DOCKER_HOST:-} ]] || die "no Docker engine answers at DOCKER_HOST=$DOCKER_HOST. Start it, or unset DOCKER_HOST."
  is_root || refuse_without_root
  lock_host
  engine_installed || install_missing
  # Installing may have started it, and so may the set-up that held the lock.
  engine_answers || start_engine
}

ensure_compose() {
  compose_present && return
  is_root || die "Docker Compose is missing (v2, or 1.29 at least). Run: $(as_root engine.sh)"
  [[ -n ${lock_fd:-} ]] || lock_host
  compose_present && return
  install_missing
  compose_present || die "Docker Compose is older than 1.29. Install Compose v2."
}

ensure_engine
ensure_compose
