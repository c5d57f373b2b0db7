// What scrolls sideways can be reached by keyboard.
function reachable() {
  for (const one of document.querySelectorAll(".bd-article table, .bd-article pre, .bd-article div.formula")) {
    if (one.scrollWidth > one.clientWidth) one.setAttribute("tabindex", "0");
    else one.removeAttribute("tabindex");
  }
}
document.addEventListener("DOMContentLoaded", reachable);
window.addEventListener("resize", reachable);
