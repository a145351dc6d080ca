package requests

import (
	"os"
	"testing"

	"github.com/rehome-dev/rehome/test/kit/scene"
)

func TestMain(m *testing.M) { os.Exit(scene.Main(m)) }
