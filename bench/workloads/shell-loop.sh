i=0
while [ $i -lt 100 ]; do /bin/true; i=$((i + 1)); done
