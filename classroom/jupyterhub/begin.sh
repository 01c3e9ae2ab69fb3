#!/bin/sh
# Run as the learner: bring the lessons as `amp-lessons lab` does, then become the server. The home is the learner's
# alone, and so are the sockets by which notebooks talk to kernels; their paths have to be short.
# A full disk must not keep a learner from what is already there, so the server starts whatever came of that.
python=$1 lessons=$2
shift 2
umask 077
chmod 700 "$HOME" 2>/dev/null  # refused where a volume is the home, which is nobody else's anyway
cd "$HOME" || exit 1
export JUPYTER_RUNTIME_DIR="$HOME/.run" AMP_LESSONS_HOME="$HOME/.local/share/amp-lessons"
"$python" -m amp_lessons lab "$HOME/$lessons" --copy-only
startup=$HOME/.ipython/profile_default/startup
mkdir -p "$HOME/$lessons" "$HOME/.run" "$startup"
cp "$(dirname "$0")/in_the_kernel.py" "$startup/00-classroom.py"
exec "$python" -m jupyterhub.singleuser "$@"
