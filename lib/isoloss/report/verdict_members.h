// What verdict.json holds of a verdict and no text shows as it is.
#pragma once

#include "isoloss/document/document.h"
#include "isoloss/gate/verdict.h"

namespace isoloss::report {

/// All of a verdict but measures, controls, checks, peers, tensors, precision
/// and warnings, which people read, too.
document::Document VerdictMembers(const gate::Judgement& judgement);

document::Document CheckMembers(const gate::Check& check);
document::Document TensorMembers(const gate::TensorFinding& finding);
document::Document PeerMembers(const gate::PeerOpinion& peer);

}  // namespace isoloss::report
