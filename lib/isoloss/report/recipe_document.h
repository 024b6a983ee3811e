// Shows people the resolved recipe of each GEMM of a model.
#pragma once

#include <string_view>

#include "isoloss/document/document.h"

namespace isoloss::report {

/// Shows a resolved recipe as a log holds it
/// (precision::ResolvedRecipe::Describe). Sites that got the same for the same
/// reason are shown once:
///   included by `feed_forward`
///     fprop  e4m3·rceil x e4m3·rceil
///     dgrad  e4m3·rceil x e4m3·rceil
///     wgrad  e4m3·rceil x e4m3·rceil
///     layers.0.feed_forward.w1, layers.0.feed_forward.w3, ...
/// Groups are in the order of their first sites. A line of a different form is
/// a group of its own and stands unchanged.
document::Document RecipeDocument(std::string_view resolved_recipe);

}  // namespace isoloss::report
