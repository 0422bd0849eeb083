package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
)

func main() {
	for _, url := range os.Args[1:] {
		answer, err := http.Get(url)
		if err != nil {
			fmt.Println("failed")
			continue
		}
		text, _ := io.ReadAll(answer.Body)
		fmt.Print(answer.StatusCode, " ", answer.Proto, " ", string(text))
	}
}
