# A web on the small internet: servers for the names of one authority that the host
# trusts here, and some that it should not. Arguments: the directory, then the command.
set -e
place=$1
shift
cd "$place"
sign() { # name of the files, name in the certificate, whose key signs, days
    openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout "$1.key" -subj "/CN=$2" -out "$1.csr" 2>/dev/null
    printf 'subjectAltName=DNS:%s\n' "$2" >"$1.ext"
    openssl x509 -req -in "$1.csr" -CA "$3.pem" -CAkey "$3.key" -CAcreateserial -days "$4" -extfile "$1.ext" -out "$1.pem" 2>/dev/null
}
expire() { # name of the files, whose key signs
    : >"$1.signed"
    echo 01 >"$1.serial"
    printf '[ca]\ndefault_ca=it\n[it]\nnew_certs_dir=.\ndatabase=%s.signed\nserial=%s.serial\ndefault_md=sha256\npolicy=any\n[any]\ncommonName=supplied\n' "$1" "$1" >"$1.conf"
    openssl ca -batch -notext -config "$1.conf" -in "$1.csr" -cert "$2.pem" -keyfile "$2.key" \
        -startdate 20200101000000Z -enddate 20210101000000Z -extfile "$1.ext" -out "$1.pem" 2>/dev/null
}
authority() {
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 30 -keyout "$1.key" -subj "/CN=$1" \
        -addext basicConstraints=critical,CA:TRUE -addext keyUsage=critical,keyCertSign -out "$1.pem" 2>/dev/null
}
authority trusted
authority stranger
sign example example.com trusted 30
sign wrong another.example trusted 30
sign late late.example trusted 30
expire late trusted
sign unknown unknown.example stranger 30
cat /etc/ssl/certs/ca-certificates.crt trusted.pem >bundle
mount --bind bundle /etc/ssl/certs/ca-certificates.crt
node web.js &
web=$!
until test -e listening; do sleep 0.02; done
status=0
"$@" || status=$?
kill $web
exit $status
