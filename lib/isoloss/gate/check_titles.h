// What people call checks and levels; files for programs hold their ids.
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

/// All of check_titles.def.
std::span<const CheckTitle> CheckTitles();

/// "final loss" of `final_window`. A check of another program's level is called
/// by its id, with spaces for underscores.
std::string TitleOf(const Check& check);

/// "oracle" of `L2`; the name itself of another program's level.
std::string_view LevelTitle(std::string_view name);

/// What to do about a check that did not pass: its `next`, or what one does
/// about all checks of its kind. "" of one that passed and asks for nothing.
std::string NextOf(const Check& check);

}  // namespace isoloss::gate
