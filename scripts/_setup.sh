# Sourced by the scripts beside it: gives each a private environment with what it needs, made by uv.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

say() { printf '\n==> %s\n' "$*"; }

# The Python to use: PYTHON if set, else the first one on PATH that is new enough.
find_python() {
    local candidate
    for candidate in ${PYTHON:-} python3.11 python3 python3.12 python3.13 python3.14 python; do
        if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            echo "$candidate"
            return
        fi
    done
    echo "Redouble needs Python 3.11 or newer: install it, or set PYTHON to where it is." >&2
    return 1
}

find_uv() {
    if command -v uv >/dev/null 2>&1; then
        echo uv
        return
    fi
    if [ ! -x .tools/bin/uv ]; then
        say "Installing uv into .tools" >&2
        "$(find_python)" -m venv .tools
        .tools/bin/python -m pip install --quiet --disable-pip-version-check uv >&2
    fi
    echo "$PWD/.tools/bin/uv"
}

# prepare FOLDER PYTHON GROUP...: an environment with the project and the named groups of dependencies.
prepare() {
    local folder=$1 python=$2 uv groups=()
    shift 2
    for group in "$@"; do groups+=(--group "$group"); done
    uv=$(find_uv)
    if [ ! -x "$folder/bin/python" ]; then
        say "Making $folder with $($python --version)"
        "$uv" venv --quiet --python "$($python -c 'import sys; print(sys.executable)')" "$folder"
    fi
    "$uv" pip install --quiet --python "$folder/bin/python" ${groups[@]+"${groups[@]}"} --editable .
}
