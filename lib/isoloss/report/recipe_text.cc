#include "isoloss/report/recipe_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <vector>

#include "isoloss/document/text_layout.h"

namespace isoloss::report {
namespace {

using document::TextStyle;
using document::Wrap;

/// Sites of which the log says the same.
struct Group {
  std::string_view said;  ///< behind the site's name: products and reason
  std::string sites;      ///< with commas
};

/// The next line; it is taken from `text`.
std::string_view TakeLine(std::string_view& text) {
  const std::string_view line = text.substr(0, text.find('\n'));
  text.remove_prefix(std::min(line.size() + 1, text.size()));
  return line;
}

std::vector<Group> Groups(std::string_view text) {
  std::vector<Group> groups;
  std::map<std::string_view, size_t> found;
  while (!text.empty()) {
    const std::string_view line = TakeLine(text);
    const std::string_view site = line.substr(0, line.find("  "));
    std::string_view said = line.substr(site.size());
    said.remove_prefix(std::min(said.find_first_not_of(' '), said.size()));
    const auto [place, is_new] = found.try_emplace(said, groups.size());
    if (is_new) groups.push_back({said, std::string(site)});
    if (!is_new) groups[place->second].sites += fmt::format(", {}", site);
  }
  return groups;
}

/// "fprop e4m3 x e4m3": the name in a column of its own.
std::string ProductLine(std::string_view product, const TextStyle& style) {
  const std::string_view name = product.substr(0, product.find(' '));
  product.remove_prefix(std::min(name.size() + 1, product.size()));
  const std::string begin = fmt::format("  {:<5}  ", name);
  return fmt::format(
      "{}{}\n", begin,
      Wrap(std::string(product), begin.size(), begin.size(), style));
}

std::string GroupText(const Group& group, const TextStyle& style) {
  std::string_view said = group.said;
  std::string reason;
  const size_t open = said.rfind("  (");
  if (open != std::string_view::npos && said.ends_with(')')) {
    reason = said.substr(open + 3, said.size() - open - 4);
    said = said.substr(0, open);
  }
  std::string text;
  if (!reason.empty()) text += Wrap(reason, 0, 2, style) + "\n";
  while (!said.empty()) {
    const std::string_view product = said.substr(0, said.find("  "));
    text += ProductLine(product, style);
    said.remove_prefix(std::min(product.size() + 2, said.size()));
  }
  return text + fmt::format("  {}\n", Wrap(group.sites, 2, 2, style));
}

}  // namespace

std::string RecipeText(std::string_view resolved_recipe,
                       const TextStyle& style) {
  std::string text;
  for (const Group& group : Groups(resolved_recipe)) {
    text += GroupText(group, style);
  }
  return text;
}

}  // namespace isoloss::report
