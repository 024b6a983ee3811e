#include "isoloss/gate/check_titles.h"

#include <algorithm>

#include "isoloss/gate/level.h"

namespace isoloss::gate {
namespace {

constexpr CheckTitle kTitles[] = {
#define ISOLOSS_CHECK_TITLE(id, title, remedy) {#id, title, remedy},
#include "isoloss/gate/check_titles.def"
#undef ISOLOSS_CHECK_TITLE
};

const CheckTitle* Find(std::string_view id) {
  const auto* found = std::ranges::find(kTitles, id, &CheckTitle::id);
  return found == std::end(kTitles) ? nullptr : found;
}

}  // namespace

std::span<const CheckTitle> CheckTitles() { return kTitles; }

std::string TitleOf(const Check& check) {
  if (const CheckTitle* known = Find(check.name)) {
    return std::string(known->title);
  }
  std::string title = check.name;
  std::ranges::replace(title, '_', ' ');
  return title;
}

std::string_view LevelTitle(std::string_view name) {
  for (const Level* level : Ladder()) {
    if (level->name == name) return level->title;
  }
  return name;
}

std::string NextOf(const Check& check) {
  if (!check.next.empty()) return check.next;
  const CheckTitle* known = Find(check.name);
  if (known == nullptr || check.outcome == Outcome::kPass) return "";
  return std::string(known->remedy);
}

}  // namespace isoloss::gate
