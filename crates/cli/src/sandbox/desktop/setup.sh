set -e
# The directory that E2B's desktop SDK begins noVNC from.
ln -s /usr/share/novnc /opt/noVNC
# The name by which it is launched elsewhere.
ln -s chromium.desktop /usr/share/applications/google-chrome.desktop
printf '[Default Applications]\ntext/html=chromium.desktop\n' > /etc/xdg/mimeapps.list
# The sandbox is around Chromium already, and leaves it no namespaces for one of its own. It takes
# the authority of this sandbox, which is another one after a pause, for its connections.
cat > /etc/chromium.d/sandbox <<'END'
authority=/run/atoll/trust/authority.pem
if [ -r "$authority" ]; then
  mkdir -p "$HOME/.pki/nssdb"
  store="sql:$HOME/.pki/nssdb"
  [ -e "$HOME/.pki/nssdb/cert9.db" ] || certutil -d "$store" -N --empty-password
  certutil -d "$store" -D -n atoll 2>/dev/null
  certutil -d "$store" -A -n atoll -t C,, -i "$authority"
fi
export CHROMIUM_FLAGS="$CHROMIUM_FLAGS --no-sandbox --test-type --no-first-run --no-default-browser-check --password-store=basic"
END
