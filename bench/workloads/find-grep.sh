find . -name '*.txt' -type f | wc -l >/dev/null
grep -r --include='*.txt' needle . >/dev/null
