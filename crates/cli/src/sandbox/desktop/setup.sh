set -e
# The directory that E2B's desktop SDK begins noVNC from.
ln -s /usr/share/novnc /opt/noVNC
# The name by which it is launched elsewhere.
ln -s chromium.desktop /usr/share/applications/google-chrome.desktop
printf '[Default Applications]\ntext/html=chromium.desktop\n' > /etc/xdg/mimeapps.list
# The sandbox is around Chromium already, and leaves it no namespaces for one of its own.
cat > /etc/chromium.d/sandbox <<'END'
export CHROMIUM_FLAGS="$CHROMIUM_FLAGS --no-sandbox --test-type --no-first-run --no-default-browser-check --password-store=basic"
END
