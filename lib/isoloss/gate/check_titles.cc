#include "isoloss/gate/check_titles.h"

#include <algorithm>

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

std::string TitleOf(std::string_view id) {
  if (const CheckTitle* known = Find(id)) return std::string(known->title);
  std::string title(id);
  std::ranges::replace(title, '_', ' ');
  return title;
}

void Entitle(std::string_view level, Check& check) {
  check.level = level;
  check.title = TitleOf(check.name);
  const CheckTitle* known = Find(check.name);
  if (check.subject.empty()) check.subject = check.title;
  check.remedy = known == nullptr ? "" : known->remedy;
}

}  // namespace isoloss::gate
