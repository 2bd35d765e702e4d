package main

import "github.com/spf13/cobra"

func newSimCommand() *cobra.Command { return &cobra.Command{Use: "sim", Short: "soon"} }
