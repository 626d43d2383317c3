# SPDX-License-Identifier: Apache-2.0
# browser.sh - after judge.sh: runs a script of this folder in node, whose lines "ok - WHAT" and "not ok - WHAT" become test points here.
browser_packages=${XDG_CACHE_HOME:-$HOME/.cache}/conclave-test

# browse SCRIPT [ARGUMENT...] : with the judge's address as first argument.
browse()
{
	local script=$1 playwright line
	shift
	playwright=$browser_packages/playwright-core-$(awk '$1 == "playwright-core" {print $2}' "$SOURCE/test/browser/npm")
	check "what test/install fetches is there: $playwright" [ -f "$playwright/index.mjs" ] || finish
	exec 8< <(PLAYWRIGHT=$playwright/index.mjs node "$SOURCE/test/browser/$script" "$url/" "$@" 2>"$DIR/browser.log"; echo "ended $?")
	while IFS= read -r line <&8; do
		case $line in
		"ok - "*) check "${line#ok - }" true ;;
		"not ok - "*) check "${line#not ok - }" false ;;
		"ended "*) check "the browser's script came to its end" [ "$line" = "ended 0" ] ;;
		*) echo "# $line" ;;
		esac
	done
	exec 8<&-
}
