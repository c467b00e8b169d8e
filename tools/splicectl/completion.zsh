#compdef splicectl
# zsh completion of splicectl. It evaluates nothing and prints nothing.
_splicectl() {
	local -a lines values shown
	local line directive
	lines=("${(@f)$("${words[1]}" __complete "${(@Q)words[2,CURRENT-1]}" "${(Q)PREFIX}" 2>/dev/null </dev/null)}")
	directive=${lines[-1]#:}
	lines[-1]=()
	[[ $PREFIX == -*=* ]] && compset -P '*='
	for line in "${lines[@]}"; do
		[[ -z $line || $line == _activeHelp_* ]] && continue
		values+=("${line%%$'\t'*}")
		shown+=("${line/$'\t'/  -- }")
	done
	if (( ${#values} )); then
		if [[ $directive == <-> ]] && (( directive & 2 )); then
			compadd -S '' -d shown -a values
		else
			compadd -d shown -a values
		fi
	elif [[ $directive == <-> ]] && (( ! (directive & 4) )); then
		_files
	fi
}
if [[ ${funcstack[1]} == _splicectl ]]; then
	_splicectl "$@"
else
	compdef _splicectl splicectl
fi
