#include "isoloss/report/page/page.h"

#include <nlohmann/json.hpp>
#include <span>

#include "isoloss/base/error.h"
#include "isoloss/base/printable.h"
#include "isoloss/document/markup.h"
#include "isoloss/report/page/files.h"
#include "isoloss/report/page/values.h"

namespace isoloss::report {
namespace {

using document::EscapedMarkup;
using document::Json;

/// The browser loads and runs only what is in the page.
constexpr std::string_view kPagePolicy =
    "default-src 'none'; script-src 'unsafe-inline'; style-src "
    "'unsafe-inline'; img-src data:";

/// Returns the policy, the title and the style.
std::string Style(const Json& data) {
  std::string text = "<meta http-equiv=\"Content-Security-Policy\" content=\"" +
                     std::string(kPagePolicy) + "\">\n<title>";
  text += EscapedMarkup(Printable(data.at("title").get<std::string>()));
  text += "</title>\n<style>\n";
  text += page_files::Style();
  return text + "</style>\n";
}

std::string Scripts() {
  std::string text;
  for (const std::string_view script : page_files::Scripts()) {
    text += "<script>\n";
    text += script;
    text += "\n</script>\n";
  }
  return text;
}

/// Puts `text` in place of the line `<!-- ISOLOSS:NAME -->`.
void Replace(std::string_view name, const std::string& text,
             std::string& page) {
  const std::string marker = "<!-- ISOLOSS:" + std::string(name) + " -->\n";
  const size_t at = page.find(marker);
  ISOLOSS_ASSERT(at != page.npos);
  page.replace(at, marker.size(), text);
}

}  // namespace

std::string RenderPage(const Json& data) {
  std::string page(page_files::Html());
  ISOLOSS_ASSERT(page.starts_with(kPageFirstLine));
  // Replaces the last marker first, so that inserted text can't be mistaken for
  // a marker that is still to come.
  Replace("SCRIPTS", Scripts(), page);
  Replace("DATA",
          "<script type=\"application/json\" id=\"data\">" + PageJson(data) +
              "</script>\n",
          page);
  Replace("STYLE", Style(data), page);
  return page;
}

}  // namespace isoloss::report
