package kit

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// SelfSigned writes a certificate for localhost and its key, for servers and clients. It
// returns the paths of the files.
func SelfSigned(t testing.TB) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	Must(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	Must(t, err)
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	Must(t, err)
	dir := t.TempDir()
	write := func(name string, block *pem.Block) string {
		path := filepath.Join(dir, name)
		Must(t, os.WriteFile(path, pem.EncodeToMemory(block), 0o600))
		return path
	}
	return write("cert.pem", &pem.Block{Type: "CERTIFICATE", Bytes: der}), write("key.pem", &pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8})
}
