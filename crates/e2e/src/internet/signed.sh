# Certificates for the names of a small internet, by an authority that the host trusts
# there. Arguments: the directory, the names, --, then the command. For each name there
# is NAME.key and NAME.pem in the directory.
set -e
place=$1
shift
new='-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes'
openssl req -x509 $new -days 30 -keyout "$place/trusted.key" -subj /CN=trusted -addext basicConstraints=critical,CA:TRUE \
    -addext keyUsage=critical,keyCertSign -out "$place/trusted.pem" 2>/dev/null
while test "$1" != --; do
    printf 'subjectAltName=DNS:%s\n' "$1" >"$place/$1.ext"
    openssl req $new -keyout "$place/$1.key" -subj "/CN=$1" -out "$place/$1.csr" 2>/dev/null
    openssl x509 -req -in "$place/$1.csr" -CA "$place/trusted.pem" -CAkey "$place/trusted.key" -CAcreateserial -days 30 \
        -extfile "$place/$1.ext" -out "$place/$1.pem" 2>/dev/null
    shift
done
shift
cat /etc/ssl/certs/ca-certificates.crt "$place/trusted.pem" >"$place/bundle"
mount --bind "$place/bundle" /etc/ssl/certs/ca-certificates.crt
exec "$@"
