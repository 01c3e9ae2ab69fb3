#!/bin/sh
# Name what the environment needs and this machine lacks, with its cure.
# Usage: check_prerequisites.sh PYTHON

python=$1
venv_package=${python##*/}-venv # as Debian names it: python3-venv, python3.12-venv

how_to_install() { # how_to_install "DEBIAN PACKAGES" OTHER_PACKAGE
    if command -v apt-get >/dev/null; then echo "sudo apt-get install $1"
    elif command -v dnf >/dev/null; then echo "sudo dnf install $2"
    elif command -v brew >/dev/null; then echo "brew install $2"
    else echo "install $2 with your system's package manager"
    fi
}

require() { # require "PYTHON CODE THAT FAILS WITHOUT IT" "WHAT IS MISSING" "CURE"
    "$python" -c "$1" >/dev/null 2>&1 && return
    printf '%s\n  %s\n' "$2" "$3" >&2
    exit 1
}

command -v git >/dev/null ||
    echo "Note: there is no git. The course runs without it, but git pull brings new lessons: $(how_to_install git git)"

require 'pass' "$python does not run; the course needs Python 3.10 or later." \
    "$(how_to_install "python3 python3-venv" python3)"
require 'import sys; sys.exit(sys.version_info < (3, 10))' \
    "$("$python" --version 2>&1) is too old; the course needs Python 3.10 or later." \
    "Install a newer one and name it: make lab PYTHON=python3.12"
require 'import venv' "$python has no venv module, which makes the environment." \
    "$(how_to_install "$venv_package" python3)"
require 'import ensurepip' "$python cannot put pip into an environment: it has no ensurepip module." \
    "$(how_to_install "$venv_package" python3)"
