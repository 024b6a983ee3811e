// Names the checks and levels in words for readers; files that programs read
// hold their ids.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "isoloss/gate/verdict.h"

namespace isoloss::gate {

struct CheckTitle {
  std::string_view id;      ///< Check::name: "final_window"
  std::string_view title;   ///< "final loss"
  std::string_view remedy;  ///< of checks that do not say it; may be empty
};

/// Returns all checks of check_titles.def.
std::span<const CheckTitle> CheckTitles();

/// Returns "final loss" for `final_window`. A check of another program's level
/// is called by its id, with spaces in place of underscores.
std::string TitleOf(std::string_view id);

/// Writes the level's name, and the title and remedy of the check's id.
void Entitle(std::string_view level, Check& check);

}  // namespace isoloss::gate
