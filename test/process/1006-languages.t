#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The languages beside those of 1001-verdicts.t: each offered, and each way to be right or wrong with exactly the verdict named.
. "${0%/*}/lib.sh"
. "${0%/*}/judge.sh"

# has_version LANGUAGE : offered, with a version text and nothing else in it.
has_version()
{
	api executors >"$answer" && shows ".executors[0].toolchains.$1 | test(\"^[A-Za-z() #]*v?[0-9]+[.][0-9]+\")"
}

# lines NAME : the text on stdin, as the value of the variable.
lines()
{
	IFS= read -r -d '' "$1" || :
}

# --- for each language: a sum, a mistake and what the compiler says of it, exit code 3, no end, too much memory ------
lines csharp_sum <<'END'
using System;
using System.Linq;
class Program
{
	static void Main() { Console.WriteLine(Console.ReadLine().Split(' ').Select(int.Parse).Sum()); }
}
END
csharp_mistake='class Program { static void Main() { oops(); } }'
csharp_says='main[.]cs[(]1,.*error CS0103.*oops'
csharp_three='class Program { static int Main() { return 3; } }'
csharp_loop='class Program { static void Main() { for (;;) ; } }'
lines csharp_memory <<'END'
using System.Collections.Generic;
class Program
{
	static void Main()
	{
		var kept = new List<byte[]>();
		for (;;) {
			var more = new byte[1 << 20];
			for (int i = 0; i < more.Length; i += 4096)
				more[i] = 1;
			kept.Add(more);
		}
	}
}
END

lines go_sum <<'END'
package main

import "fmt"

func main() {
	var a, b int
	fmt.Scan(&a, &b)
	fmt.Println(a + b)
}
END
go_mistake='package main
func main() { oops() }'
go_says='main[.]go:2:.*undefined: oops'
go_three='package main
import "os"
func main() { os.Exit(3) }'
go_loop='package main
func main() { for { } }'
lines go_memory <<'END'
package main

import "os"

func main() {
	var kept [][]byte
	for {
		more := make([]byte, 1<<20)
		for i := 0; i < len(more); i += 4096 {
			more[i] = 1
		}
		kept = append(kept, more)
		if len(kept) < 0 {
			os.Exit(len(kept))
		}
	}
}
END

lines java_sum <<'END'
import java.util.*;
public class Main {
	public static void main(String[] args) {
		Scanner in = new Scanner(System.in);
		System.out.println(in.nextInt() + in.nextInt());
	}
}
END
java_mistake='public class Main { public static void main(String[] args) { oops(); } }'
java_says='Main[.]java:1: error.*oops'
java_three='public class Main { public static void main(String[] args) { System.exit(3); } }'
java_loop='public class Main { public static void main(String[] args) { for (;;) ; } }'
lines java_memory <<'END'
import java.util.*;
public class Main {
	public static void main(String[] args) {
		List<byte[]> kept = new ArrayList<>();
		for (;;)
			kept.add(new byte[1 << 20]);
	}
}
END

lines javascript_sum <<'END'
const [a, b] = require("fs").readFileSync("/dev/stdin", "utf8").split(" ").map(Number);
console.log(a + b);
END
javascript_mistake='console.log(1'
javascript_says='main[.]js:1.*SyntaxError'
javascript_three='process.exit(3);'
javascript_loop='for (;;) ;'
javascript_memory='const kept = []; for (;;) kept.push(Buffer.alloc(1 << 20, 1));'

lines lua_sum <<'END'
local a, b = io.read("n", "n")
print(a + b)
END
lua_mistake='print(1'
lua_says='main[.]lua:1:.*expected'
lua_three='os.exit(3)'
lua_loop='while true do end'
lua_memory='local kept = {} while true do kept[#kept + 1] = string.rep("x", 1 << 20) end'

lines pascal_sum <<'END'
program sum;
var a, b: integer;
begin
	read(a, b);
	writeln(a + b);
end.
END
pascal_mistake='begin oops; end.'
pascal_says='main[.]pas[(]1,.*Error.*oops'
pascal_three='begin halt(3); end.'
pascal_loop='begin while true do ; end.'
pascal_memory='var p: pointer; begin while true do begin getmem(p, 1 shl 20); fillchar(p^, 1 shl 20, 1); end; end.'

lines php_sum <<'END'
<?php
// ctype is an extension: /etc/php says where it is
echo array_sum(array_filter(explode(" ", trim(fgets(STDIN))), "ctype_digit")), "\n";
END
php_mistake='<?php echo (1;'
php_says='Parse error.*main[.]php on line 1'
php_three='<?php exit(3);'
php_loop='<?php while (true) ;'
php_memory='<?php $kept = []; while (true) $kept[] = str_repeat("x", 1 << 20);'

lines ruby_sum <<'END'
require "set"
puts gets.split.map(&:to_i).sum
END
ruby_mistake='puts (1'
ruby_says='main[.]rb:1: syntax error'
ruby_three='exit 3'
ruby_loop='while true do end'
ruby_memory='kept = []; while true do kept << "x" * (1 << 20) end'

lines rust_sum <<'END'
fn main() {
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
    println!("{}", line.split_whitespace().map(|word| word.parse::<i32>().unwrap()).sum::<i32>());
}
END
rust_mistake='fn main() { oops(); }'
rust_says='error.*oops.*main[.]rs:1'
rust_three='fn main() { std::process::exit(3); }'
rust_loop='fn main() { loop { std::hint::spin_loop(); } }'
rust_memory='fn main() { let mut kept = Vec::new(); loop { kept.push(vec![1u8; 1 << 20]); } }'

# Most grow until the sandbox ends them; these have a limit of their own and say so.
# What is allowed is the limit and what the profile adds for the runtime.
by_sandbox='ended("run_failed"; "memory_limit") and
	(.cases[0].limit | .name == "memory_bytes" and (.allowed | within(134217728; 201326592)))'
java_ends='ended("run_failed"; "runtime_error") and (.cases[0] | .exit_code == 1 and (.stderr | contains("java.lang.OutOfMemoryError")))'

judge_start
others="csharp go java javascript lua pascal php ruby rust"
check "the judge offers the others too" wait_until "$START_S" offers $others || finish

# text LANGUAGE WHAT : the program of that name.
text()
{
	local name=$1_$2
	printf %s "${!name}"
}

for language in csharp go java javascript lua pascal php ruby rust; do
	check "$language is offered with its version" has_version "$language"
	judged "$language: right is accepted" \
		"$(task '{$language, $source, input: "1 2\n", expected: "3\n"}' language "$language" source "$(text $language sum)")" \
		'ended("success"; "accepted") and fits and .cases[0].stdout == "3\n" and .cases[0].stderr == "" and .score == 1 and
		.compile.exit_code == 0'
	judged "$language: wrong output is wrong_answer" \
		"$(task '{$language, $source, input: "1 2\n", expected: "4\n"}' language "$language" source "$(text $language sum)")" \
		'ended("success"; "wrong_answer") and fits and .cases[0].stdout == "3\n" and .score == 0'
	judged "$language: a mistake is compile_error, with the compiler's text" \
		"$(task '{$language, $source}' language "$language" source "$(text $language mistake)")" \
		"ended(\"compile_failed\"; \"compile_error\") and .compile.exit_code != 0 and .compile.limit == null and .cases == [] and
		(.compile.stdout + .compile.stderr | test(\"$(text $language says)\"; \"p\"))"
	judged "$language: exit 3 is runtime_error with the code" \
		"$(task '{$language, $source, expected: ""}' language "$language" source "$(text $language three)")" \
		'ended("run_failed"; "runtime_error") and (.cases[0] | .exit_code == 3 and .signal == null and .limit == null)'
	judged "$language: a loop without end is time_limit" \
		"$(task '{$language, $source, limits: {cpu_ms: 1000, wall_ms: 60000}}' language "$language" source "$(text $language loop)")" \
		'ended("run_failed"; "time_limit") and (.cases[0] | limit("cpu_ms"; 1000))'
	ends=${language}_ends
	judged "$language: too much memory is told" \
		"$(task '{$language, $source, limits: {memory_bytes: 134217728, cpu_ms: 20000, wall_ms: 60000}}' \
			language "$language" source "$(text $language memory)")" "${!ends:-$by_sandbox}"
done

judge_stop
finish
