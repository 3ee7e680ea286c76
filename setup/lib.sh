# shellcheck shell=bash
# What the set-up scripts share: messages, refusals, rights, locks, apt. Sourced, never run.

set -euo pipefail

checkout=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)

# A user's PATH often lacks the administrators' folders that go with /usr/bin.
case ":$PATH:" in *:/usr/bin:*) PATH+=:/usr/local/sbin:/usr/sbin:/sbin ;; esac

# Ctrl-C and kill end the script through its EXIT trap, with the usual status.
trap 'exit 130' INT
trap 'exit 143' TERM

# Announce a step that really does something. Standard output is kept for results.
say() { printf 'setup: %s\n' "$*" >&2; }

# Stop with one line: what is wrong, and what to do about it.
die() {
  say "$*"
  exit 2
}

# require_ours PATH...: stop unless what there is of these may be written, and so replaced or removed, by this account.
require_ours() {
  local path
  for path; do
    [[ ! -e $path || -w $path ]] ||
      die "cannot write $path, which belongs to $(stat -c %U "$path"). Run: sudo chown -R $(id -un) $(printf %q "$checkout")"
  done
}

# The last non-empty line of standard input, so that another program's failure fits in ours.
last_line() { sed '/^[[:space:]]*$/d' | tail -n 1; }

is_root() { [[ $(id -u) == 0 ]]; }

installing_allowed() { [[ ${NAGLE_LAB_NO_INSTALL:-0} != 1 ]]; }

# True on Debian, Ubuntu and what derives from them.
is_debian() { grep -Eqs '^ID(_LIKE)?=.*(debian|ubuntu)' "${1:-/etc/os-release}"; }

has_systemd() { [[ -d /run/systemd/system ]] && command -v systemctl >/dev/null; }

# as_root SCRIPT: the command that runs one of our scripts as root, to show to a person.
as_root() { printf 'sudo %q' "$checkout/setup/$1"; }

# one_at_a_time FILE: wait until no other set-up holds FILE, then hold it until this script ends.
one_at_a_time() {
  exec {lock_fd}<"$1"
  flock --nonblock "$lock_fd" && return
  say "waiting for another set-up to finish"
  flock --timeout 1800 "$lock_fd" || die "another set-up has held $1 for 30 minutes. End it and try again."
}

# Root's set-up changes the whole host, so it locks that; anybody else's changes this checkout only.
lock_host() {
  local file=$checkout/setup/lib.sh
  if [[ -w /run ]]; then
    file=/run/nagle-lab-setup.lock
    : >>"$file"
  fi
  one_at_a_time "$file"
}

# unlocked COMMAND...: run it without our lock, which a daemon that it leaves behind would keep.
unlocked() { (
  [[ -z ${lock_fd:-} ]] || exec {lock_fd}<&-
  exec "$@"
); }

# True when apt could install the package.
apt_has() { grep -q 'Candidate: [^(]' <<<"$(LC_ALL=C apt-cache policy "$1" 2>/dev/null)"; }

# One apt-get of ours at a time on this host; another's is waited for by apt itself.
apt_get() {
  DEBIAN_FRONTEND=noninteractive NEEDRESTART_SUSPEND=1 unlocked flock --close /run/nagle-lab-apt.lock \
    apt-get -qq -o DPkg::Lock::Timeout=300 "$@" 2>&1 </dev/null
}

# A broken third-party list must not stop us: what matters is whether the package can be installed.
apt_update() { apt_get update >/dev/null || true; }

# apt_install PACKAGE...: announced, and without questions.
apt_install() {
  local said
  say "installing $* with apt-get (may take a minute)"
  said=$(apt_get install -y --no-install-recommends "$@") ||
    die "apt-get cannot install $*: $(grep '^E: ' <<<"$said" | last_line) Repair apt, or install them yourself."
}
