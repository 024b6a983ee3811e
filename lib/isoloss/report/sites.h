// What a study of sites says, for people and for programs.
#pragma once

#include <string>

#include "isoloss/sites/statement.h"

namespace isoloss::report {

/// A row for each product by descending harm; the speed model and its tries;
/// sets that others quantise; the recipe and how its runs came out.
std::string RenderSites(const sites::Statement& statement);

/// One JSON object; numbers that are not there are null.
std::string RenderSitesJson(const sites::Statement& statement);

/// The frontier of the loss gap against the speed-up of the 671B model with
/// published filters as points; below it the harm of each product.
std::string RenderSitesSvg(const sites::Statement& statement);

}  // namespace isoloss::report
