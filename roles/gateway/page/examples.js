// SPDX-License-Identifier: Apache-2.0
// examples - the smallest whole program of each language: it reads two numbers and prints their sum.

export const INPUT = "1 2\n";
export const EXPECTED = "3\n";

export const EXAMPLES = {
	bash: `read -r a b
echo $((a + b))
`,
	c: `#include <stdio.h>

int main(void)
{
	int a, b;

	if (scanf("%d %d", &a, &b) != 2)
		return 1;
	printf("%d\\n", a + b);
}
`,
	cpp: `#include <iostream>

int main()
{
	int a, b;

	std::cin >> a >> b;
	std::cout << a + b << "\\n";
}
`,
	csharp: `using System;

class Program
{
	static void Main()
	{
		string[] words = Console.ReadLine().Split(' ');
		Console.WriteLine(int.Parse(words[0]) + int.Parse(words[1]));
	}
}
`,
	go: `package main

import "fmt"

func main() {
	var a, b int

	fmt.Scan(&a, &b)
	fmt.Println(a + b)
}
`,
	java: `import java.util.Scanner;

public class Main {
	public static void main(String[] arguments) {
		Scanner in = new Scanner(System.in);

		System.out.println(in.nextInt() + in.nextInt());
	}
}
`,
	javascript: `const [a, b] = require("fs").readFileSync(0, "utf8").split(/\\s+/).map(Number);

console.log(a + b);
`,
	lua: `local a, b = io.read("n", "n")
print(a + b)
`,
	pascal: `program sum;
var
  a, b: integer;
begin
  read(a, b);
  writeln(a + b);
end.
`,
	php: `<?php
[$a, $b] = explode(" ", trim(fgets(STDIN)));
echo $a + $b, "\\n";
`,
	python: `a, b = map(int, input().split())
print(a + b)
`,
	ruby: `a, b = gets.split.map(&:to_i)
puts a + b
`,
	rust: `use std::io;

fn main() {
    let mut line = String::new();
    io::stdin().read_line(&mut line).unwrap();
    let sum: i64 = line.split_whitespace().map(|word| word.parse::<i64>().unwrap()).sum();
    println!("{}", sum);
}
`,
};
