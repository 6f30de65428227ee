# shellcheck shell=bash
# Packages for a machine where nothing can be installed: fetched on another one, carried as a folder, found through the
# environment. Sourced by tools/gpu-check after tools/setup.sh; it only defines.
#
#   gpu_fetch DIR CMAKE     downloads with apt and unpacks into DIR; CMAKE yes: cmake and ninja with their libraries too
#   gpu_use DIR             what DIR holds is found by cmake, pkg-config, the compiler and the loader
#
# DIR/libraries is put behind what the machine has where there is an order. DIR/cmake is used only where the machine
# has no cmake that is new enough: its libraries (curl, ssl, xml) would come before the machine's own.

gpu_libraries=(libgsl-dev libgsl27 libgslcblas0 libcjson-dev libcjson1 check libsubunit-dev libsubunit0 zlib1g-dev zlib1g
  pkgconf pkgconf-bin libpkgconf3 libopenblas0-serial libgfortran5 libquadmath0)

# The packages that cmake and ninja need, without those that every machine with a compiler has. Names differ between
# releases of Debian, so apt is asked.
gpu_cmake_packages() {
  apt-cache depends --recurse --no-recommends --no-suggests --no-conflicts --no-breaks --no-replaces --no-enhances \
    cmake ninja-build | grep '^[a-z]' | sort -u |
    grep -vE '^(libc6|libc-.*|libgcc-s1|gcc-.*|libstdc\+\+6|zlib1g|dpkg|tar|mawk|perl.*|libperl.*|procps|init-.*|usr.*|libsystemd0|libproc2-0|libncursesw6|libtinfo6|libelogind0|debconf.*|cdebconf)$'
}

# Links of packages name places below /; here they are below DIR.
gpu_mend_links() {
  local dir=$1 link target
  find "$dir" -type l | while IFS= read -r link; do
    target=$(readlink "$link")
    case $target in
    /*) if [ -e "$dir$target" ]; then ln -sfn -r "$dir$target" "$link"; else rm -f "$link"; fi ;;
    esac
  done
}

# Like /usr, the folder may stand anywhere: each file of pkg-config says where from where it is itself.
gpu_mend_pkg_config() {
  # shellcheck disable=SC2016 # pkg-config's variable
  find "$1" -name '*.pc' -exec sed -i 's|\([=IL]\)/usr|\1${pcfiledir}/../../..|g' {} +
}

# unpack DIR PACKAGE...
gpu_unpack() {
  local dir=$1 file
  shift
  mkdir -p "$dir/archives"
  (cd "$dir/archives" && apt-get -q -o APT::Sandbox::User=root download "$@") >"$dir/archives/log" 2>&1 || {
    tail -n 3 "$dir/archives/log" >&2
    hec_die "apt-get download failed; is apt-get update due?"
  }
  for file in "$dir"/archives/*.deb; do dpkg -x "$file" "$dir"; done
  rm -rf "${dir:?}"/{archives,etc,usr/share/{doc,man,info}}
  gpu_mend_links "$dir"
  gpu_mend_pkg_config "$dir"
}

gpu_fetch() {
  local dir=$1 with_cmake=$2 name names
  for name in apt-get apt-cache dpkg; do
    command -v "$name" >/dev/null || hec_die "--fetch needs $name: run it on a machine with apt."
  done
  [ ! -e "$dir" ] || [ -d "$dir/libraries" ] || [ -z "$(ls -A "$dir" 2>/dev/null)" ] ||
    hec_die "$dir holds something else; name another folder."
  rm -rf "$dir/libraries" "$dir/cmake"
  gpu_unpack "$dir/libraries" "${gpu_libraries[@]}"
  find "$dir/libraries" \( -name 'libgsl*.a' -o -name libz.a -o -name 'liblapack*' \) -delete # never linked
  if [ "$with_cmake" = yes ]; then
    mapfile -t names < <(gpu_cmake_packages)
    gpu_unpack "$dir/cmake" "${names[@]}"
  fi
  hec_say "$dir: $(du -sh "$dir" | cut -f 1)"
}

# gpu_behind VARIABLE PATH...: those that exist, as elements of a list with colons.
gpu_behind() {
  local name=$1 path
  shift
  for path in "$@"; do
    [ ! -d "$path" ] || export "$name=${!name:+${!name}:}$path"
  done
}

gpu_use() {
  local dir from
  [ -d "$1/libraries" ] || return 0
  dir=$(CDPATH='' cd -- "$1" && pwd -P)
  from=$dir/libraries/usr
  gpu_behind PATH "$from/bin"
  gpu_behind PKG_CONFIG_PATH "$from"/lib/*/pkgconfig "$from/lib/pkgconfig"
  gpu_behind LD_LIBRARY_PATH "$from"/lib/*/openblas-serial "$from"/lib/*-linux-gnu "$dir"/libraries/lib/*-linux-gnu
  gpu_behind LIBRARY_PATH "$from"/lib/*-linux-gnu
  gpu_behind CMAKE_PREFIX_PATH "$from"
  if ! hec_cmake_works && [ -x "$dir/cmake/usr/bin/cmake" ]; then
    export PATH=$dir/cmake/usr/bin:$PATH
    gpu_behind LD_LIBRARY_PATH "$dir"/cmake/usr/lib/*-linux-gnu "$dir"/cmake/lib/*-linux-gnu
  fi
  command -v ninja >/dev/null || gpu_behind PATH "$dir/cmake/usr/bin"
  hash -r
}
