// Shows the keys of a gate's policy, for `isoloss gate --keys`.
#pragma once

#include "isoloss/document/document.h"

namespace isoloss::report {

/// Returns a line for each key, with its default and unit as a policy file may
/// hold them. The lines below it say what the key means and which values it
/// takes:
///   margin_percent = 0.25 # % of the baseline's loss
///       differences of the loss below it do not matter
///       values: (0, 100)
///
/// Programs read {"keys": [{"name", "default", "unit", "values", "meaning"}]}.
/// The default is a string that holds TOML.
document::Document PolicyKeysDocument();

}  // namespace isoloss::report
