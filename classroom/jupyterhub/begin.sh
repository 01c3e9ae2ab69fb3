#!/bin/sh
# Run as the learner, in the learner's home: bring the lessons as `amp-lessons lab` does, then become the server.
# A full disk must not keep a learner from what is already there, so the server starts whatever came of that.
python=$1 lessons=$2
shift 2
"$python" -m amp_lessons lab "$HOME/$lessons" --copy-only
startup=$HOME/.ipython/profile_default/startup
mkdir -p "$HOME/$lessons" "$HOME/.run" "$startup"
cp "$(dirname "$0")/in_the_kernel.py" "$startup/00-classroom.py"
exec "$python" -m jupyterhub.singleuser "$@"
