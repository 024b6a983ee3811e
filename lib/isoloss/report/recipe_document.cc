#include "isoloss/report/recipe_document.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "isoloss/runlog/recipe_phases.h"

namespace isoloss::report {
namespace {

using document::Document;
using document::Line;

/// Groups the sites of which the log says the same.
struct Group {
  std::string_view said;  ///< after the site's name: products and reason
  std::string sites;      ///< with commas
};

/// Returns the next line, and removes it from `text`.
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

/// Adds "fprop e4m3 x e4m3" with the name in its own column.
void AddProduct(std::string_view product, Document& document) {
  const std::string_view name = product.substr(0, product.find(' '));
  product.remove_prefix(std::min(name.size() + 1, product.size()));
  std::string begin = fmt::format("  {:<5}  ", name);
  const size_t hang = begin.size();
  document.Add(Line{
      .text = std::string(product), .hang = hang, .label = std::move(begin)});
}

void AddGroup(const Group& group, Document& document) {
  std::string_view said = group.said;
  std::string reason;
  const size_t open = said.rfind("  (");
  if (open != std::string_view::npos && said.ends_with(')')) {
    reason = said.substr(open + 3, said.size() - open - 4);
    said = said.substr(0, open);
  }
  if (!reason.empty()) {
    document.Add(Line{.text = std::move(reason), .hang = 2});
  }
  while (!said.empty()) {
    const std::string_view product = said.substr(0, said.find("  "));
    AddProduct(product, document);
    said.remove_prefix(std::min(product.size() + 2, said.size()));
  }
  document.Add(Line{.text = group.sites, .indent = 2, .hang = 2});
}

}  // namespace

Document RecipeDocument(std::string_view resolved_recipe) {
  Document document;
  for (const runlog::PhaseText& phase : runlog::PhaseTexts(resolved_recipe)) {
    if (phase.first_step > 1) {
      document.Add(Line{.text = fmt::format("from step {}: {}",
                                            phase.first_step, phase.recipe)});
    }
    for (const Group& group : Groups(phase.sites)) AddGroup(group, document);
  }
  return document;
}

}  // namespace isoloss::report
