set -e
for i in 1 2 3 4 5 6 7 8; do gcc -O1 -c unit.c -o "unit$i.o"; done
