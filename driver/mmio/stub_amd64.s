#include "textflag.h"

// func Load32(p unsafe.Pointer) uint32
TEXT ·Load32(SB), NOSPLIT, $0-12
	MOVQ	p+0(FP), AX
	MOVL	(AX), AX
	MOVL	AX, ret+8(FP)
	RET

// func Store32(p unsafe.Pointer, v uint32)
TEXT ·Store32(SB), NOSPLIT, $0-12
	MOVQ	p+0(FP), AX
	MOVL	v+8(FP), CX
	MOVL	CX, (AX)
	RET

// func Load64(p unsafe.Pointer) uint64
TEXT ·Load64(SB), NOSPLIT, $0-16
	MOVQ	p+0(FP), AX
	MOVQ	(AX), AX
	MOVQ	AX, ret+8(FP)
	RET

// func Store64(p unsafe.Pointer, v uint64)
TEXT ·Store64(SB), NOSPLIT, $0-16
	MOVQ	p+0(FP), AX
	MOVQ	v+8(FP), CX
	MOVQ	CX, (AX)
	RET
