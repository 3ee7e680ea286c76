#!/usr/bin/env bash
# Make sure that the local image nagle-lab/base, from which every image of the lab is built, exists.
#
# BASE_IMAGE=<image> uses that one. Otherwise Debian stable: pulled by digest where a registry
# answers, else bootstrapped from the distribution's packages. Our own is also tagged with its
# suite, so that unsetting BASE_IMAGE goes back to it without making it again.
#
# base-image.sh NAME makes our own anew under that name, and leaves nagle-lab/base and BASE_IMAGE alone.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

readonly IMAGE=nagle-lab/base
readonly SUITE=trixie
readonly OWN=${1:-$IMAGE:$SUITE}
readonly PULLED=debian:trixie-slim
readonly DIGEST=sha256:a29215f6a35e51e22adffa17f89e9d2ef06214e64a2bad10d765c46aea49f11f
readonly ANSWER_SECONDS=10 PULL_SECONDS=900

scratch='' pull_pid=''
clean_up() {
  [[ -z $pull_pid ]] || kill "$pull_pid" 2>/dev/null || true
  [[ -z $scratch ]] || rm -rf --one-file-system "$scratch"
}
trap clean_up EXIT

readonly REMEDY="Set BASE_IMAGE to a Debian $SUITE image that is on this machine or can be pulled."

make_scratch() { scratch=$(mktemp -d "${TMPDIR:-/var/tmp}/nagle-lab-base.XXXXXX"); }

image_id() { docker image inspect --format '{{.Id}}' "$1" 2>/dev/null; }

# use IMAGE: let nagle-lab/base name it, where it does not already. False when there is no such image.
use() {
  local id
  id=$(image_id "$1") || return
  [[ $(image_id "$IMAGE") == "$id" ]] || docker tag "$1" "$IMAGE"
}

# pull REFERENCE: false, with the reason in $pull_said, when it cannot be had. The registry gets
# a few seconds for its first word; the download itself may take minutes.
pull() {
  local said=$scratch/pull waited status=0
  : >"$said"
  timeout "$PULL_SECONDS" docker pull "$1" >"$said" 2>&1 </dev/null &
  pull_pid=$!
  for ((waited = 0; waited < ANSWER_SECONDS * 10; waited++)); do
    if grep -q 'Pulling from' "$said" || ! kill -0 "$pull_pid" 2>/dev/null; then break; fi
    sleep 0.1
  done
  if ((waited == ANSWER_SECONDS * 10)); then
    kill "$pull_pid"
    wait "$pull_pid" || true
    pull_pid='' pull_said="no registry answered within $ANSWER_SECONDS s"
    return 1
  fi
  wait "$pull_pid" || status=$?
  pull_pid=''
  case $status in
    0) return 0 ;;
    124) pull_said="took longer than $PULL_SECONDS s" ;;  # what timeout(1) exits with then
    *) pull_said=$(last_line <"$said" | sed 's/^Error response from daemon: //') ;;
  esac
  return 1
}

# The pinned image, or the tag where the registry has dropped that digest.
pull_default() {
  local pinned=${PULLED%:*}@$DIGEST
  if ! image_id "$pinned" >/dev/null; then
    say "pulling $PULLED (about 30 MB)"
    if ! pull "$PULLED@$DIGEST"; then
      [[ $pull_said =~ manifest.*(unknown|not\ found)|$DIGEST:\ not\ found ]] || return
      say "the registry no longer has the pinned digest of $PULLED; pulling the tag instead"
      pull "$PULLED" || return
      pinned=$PULLED
    fi
  fi
  docker tag "$pinned" "$OWN"
}

install_mmdebstrap() {
  local why="the base image cannot be pulled ($pull_said) and"
  is_root || die "$why bootstrapping it needs root. $REMEDY Or run: $(as_root base-image.sh)"
  command -v mmdebstrap >/dev/null && return
  is_debian || die "$why bootstrapping it needs mmdebstrap. $REMEDY"
  installing_allowed || die "$why NAGLE_LAB_NO_INSTALL=1 forbids installing mmdebstrap. $REMEDY"
  apt_update
  apt_install mmdebstrap debian-archive-keyring gpg
}

# A minimal system from the distribution's packages, imported as an image that says how it was made.
# As in the slim images it has no manuals or translations (the licences stay), and installing a
# package during a build starts no service.
bootstrap() {
  local tar=$scratch/$SUITE.tar said made
  say "cannot pull it (${pull_said##*: }): bootstrapping Debian $SUITE from packages (half a minute or more)"
  said=$(unlocked mmdebstrap --variant=apt --quiet \
    --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-include=/usr/share/doc/*/copyright' \
    --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/info/*' \
    --dpkgopt='path-exclude=/usr/share/locale/*' \
    "$SUITE" "$tar" 2>&1 </dev/null) ||
    die "cannot bootstrap Debian $SUITE: $(grep '^E: ' <<<"$said" | head -n 1) $REMEDY"
  # mmdebstrap has just removed its own policy; the image needs one too.
  printf '#!/bin/sh\nexit 101\n' >"$scratch/policy-rc.d"
  tar --append --file "$tar" --directory "$scratch" --owner=0 --group=0 --mode=755 \
    --transform 's,^,./usr/sbin/,' policy-rc.d
  made="bootstrapped from Debian $SUITE packages by mmdebstrap on $(date -u +%Y-%m-%d)"
  said=$(docker import --change 'CMD ["bash"]' --change "LABEL nagle-lab.origin=\"$made\"" \
    "$tar" "$OWN" 2>&1) || die "cannot import the base image: $(last_line <<<"$said"). Is the disk full?"
}

use_given() {
  use "$BASE_IMAGE" && return
  make_scratch
  say "pulling BASE_IMAGE=$BASE_IMAGE"
  pull "$BASE_IMAGE" || die "BASE_IMAGE=$BASE_IMAGE is not on this machine and cannot be pulled: $pull_said. Name another, or unset it."
  use "$BASE_IMAGE"
}

make_own() {
  make_scratch
  pull_default && return
  install_mmdebstrap
  bootstrap
}

use_default() {
  use "$OWN" && return
  lock_host
  use "$OWN" && return
  make_own
  use "$OWN"
}

if (($#)); then
  lock_host
  make_own
elif [[ -n ${BASE_IMAGE:-} ]]; then
  use_given
else
  use_default
fi
