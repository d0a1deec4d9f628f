#!/usr/bin/env bash
# Installs the target with what its tests need, and runs them. Arguments go to pip: folders or wheels of litz's packages
# to use instead of the index's, such as path/to/litz/packages/ir path/to/litz/packages/scheduler.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)

python3 -m venv "$here/build/ci"
"$here/build/ci/bin/python3" -m pip install --quiet "$@" --editable "$here[test]"
exec "$here/build/ci/bin/python3" -m pytest -q "$here/tests"
