// Package config turns flags, environment, config file and defaults into one validated Config.
//
// Every setting is one row of a table (fields.go): its flag, default, meaning and parser. The flag set, the help,
// the keys of the config file, the environment names and docs/config.md all come from that table.
//
// # Ownership
//
// Load returns a Config that the caller owns; nothing here keeps a reference to it, and nothing changes it later.
//
// # Invariants
//
//  1. A setting comes from exactly one source: the flag, else PD_ROUTER_<FLAG>, else the config file, else the
//     default. Lists are not merged across sources.
//  2. Whatever the source, a value goes through the same parser, so a value good in one place is good in all.
//  3. An error is one line that names the setting, the value as given, the source when that is not the command
//     line, and what is wanted.
//  4. A time that Load accepted is not negative and at most MaxDuration: two of them can be added without overflow.
//  5. A Config that Load returned can be served: values that contradict each other are refused here.
//
// # Not here
//
// What a setting does. Reading the files of a model folder, resolving names and opening ports belong to the parts
// that use them.
package config
