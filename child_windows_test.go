package main

import "errors"

func detach() error { return errors.ErrUnsupported }
