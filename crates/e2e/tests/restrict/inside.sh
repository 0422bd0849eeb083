at=http://atoll.internal/restrict
ask() { CURL --json "$1" $at; }
echo before $(CURL http://example.com/before)
echo nothing yet $(curl -s --noproxy '*' $at)
echo form $(CURL -d '{"network":"none"}' $at)
echo forged $(ask '{"network":"none"')
echo widened $(ask '{"deny-hosts":["x.example"],"allow":["*"]}')
echo empty $(ask '{"deny-hosts":[]}')
head -c 100000 /dev/zero | tr '\0' ' ' >large
echo huge $(ask @large)
echo deleted $(CURL -X DELETE $at)
echo elsewhere $(CURL http://atoll.internal/allow)
echo given $(ask '{"deny-hosts":["example.com"]}')
echo told $(curl -s --noproxy '*' --json '{"deny-hosts":["www.example.com"]}' $at)
echo after $(CURL http://example.com/after)
echo child $(setsid CURL http://example.com/child)
echo later $(ask '{"until-seconds":100000}')
ask '{"until-seconds":200000}' >/dev/null
echo again $(CURL http://example.com/again)
echo other $(CURL http://93.184.216.35/other)
number=0
while [ $number -lt 80 ]; do
    number=$((number + 1))
    ask "{\"deny-hosts\":[\"h$number.example\"]}" >flood
done
echo flooded $(cat flood)
./atoll-inside restrict --no-network 2>&1
echo by itself $?
echo closed $(CURL http://93.184.216.35/closed)
echo by a proxy $(curl -s -m 20 -o answer -w '%{http_code}' -x http://proxy.atoll.internal:3128 $at)
