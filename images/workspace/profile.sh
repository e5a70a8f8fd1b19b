# Login shells: /etc/profile has just reset PATH and umask.
if [ -n "${BERTH_PATH:-}" ]; then
    PATH=$BERTH_PATH
else
    PATH=/opt/berth/py/bin:/opt/berth/bin:$PATH
fi
export PATH
umask 002
