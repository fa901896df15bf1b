// Follows a marker's link: opens the section of its target and highlights the target's lines.
let count = 1;
function reveal() {
  const target = document.getElementById(location.hash.slice(1));
  if (!target) return;
  for (let at = target; at; at = at.parentElement) if (at.tagName === "DETAILS") at.open = true;
  document.querySelectorAll(".lit").forEach((line) => line.classList.remove("lit"));
  if (target.classList.contains("l")) {
    const lines = [...target.closest(".part, .target").querySelectorAll(".sent .l")];
    const first = lines.indexOf(target);
    lines.slice(first, first + count).forEach((line) => line.classList.add("lit"));
  }
  target.scrollIntoView({ block: target.classList.contains("l") ? "center" : "start" });
}
addEventListener("hashchange", reveal);
addEventListener("click", (event) => {
  const marker = event.target.closest("a.marker");
  if (!marker) return;
  count = Number(marker.dataset.count || 1);
  if (marker.hash === location.hash) reveal();
});
reveal();
