// Points pi's built-in providers at the proxy of `ibidem wrap`, for one run. Loaded with --extension.
export default function (pi) {
  const urls = JSON.parse(process.env.IBIDEM_PI_BASE_URLS ?? "{}");
  for (const [provider, baseUrl] of Object.entries(urls)) pi.registerProvider(provider, { baseUrl });
}
